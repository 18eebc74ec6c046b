"""An MCP server over records: assistants search, remember and forget.

`evervec mcp` serves it on stdio over a store or a service, and `evervec serve` under `/mcp`. Tools
call the facade, `evervec.Client` or the service's own routes, and nothing below them.
"""
