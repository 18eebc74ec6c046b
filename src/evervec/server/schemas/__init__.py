"""The schemas of request and response bodies, by route, as OpenAPI shows them."""
