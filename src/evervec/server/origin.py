"""The origin of a request: the socket's peer, or the client that a trusted proxy names.

While no keys exist, an admitted client has full access. So only clients on this machine are
admitted, by the address of the socket, never by a header, and not if there is a sign that the
request was forwarded, comes from a web page, or passed through another application.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from evervec.errors import SettingsError
from evervec.server.requests import Scope

_PROXY_HEADERS = frozenset({
    "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "client-ip",
    "true-client-ip", "fastly-client-ip", "fly-client-ip", "x-appengine-user-ip", "x-azure-clientip",
    "x-azure-socketip", "x-envoy-external-address", "x-proxyuser-ip", "x-original-host",
    "x-original-url", "x-rewrite-url", "x-originating-ip", "x-remote-ip", "x-remote-addr",
    "x-host", "x-amzn-trace-id", "x-cloud-trace-context", "cdn-loop", "cf-ray", "cf-visitor",
})  # fmt: skip
_PROXY_PREFIXES = ("x-forwarded", "cf-connecting", "x-original-forwarded", "x-vercel-", "x-nf-")


class Proxies:
    """The proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted (`trusted_proxies`)."""

    def __init__(self, setting: str) -> None:
        self._networks = [_network(part) for part in setting.replace(",", " ").split()]

    def trust(self, address: str) -> bool:
        if not self._networks:
            return False
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def client_of(self, scope: Scope) -> str:
        """The client's address: the peer's, unless that is a trusted proxy. Each proxy appends its
        peer to X-Forwarded-For, so the last address that is not a trusted proxy is the client's;
        the addresses before it may be forged. Some proxies append its port, too."""
        peer = _peer(scope)
        if not self.trust(peer):
            return peer
        hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        client = peer
        for hop in reversed(hops):
            found = _address(hop.strip()) or _address(_host_of(f"//{hop.strip()}"))
            if found is None:
                break
            client = str(found)
            if not self.trust(client):
                break
        return client

    def scheme_of(self, scope: Scope) -> str:
        """`https` if the client used TLS up to this service, or up to a trusted proxy that says so
        in X-Forwarded-Proto; of several, the first is the client's."""
        scheme: str = scope.get("scheme", "http")
        if scheme == "https" or not self.trust(_peer(scope)):
            return scheme
        said = Headers(scope=scope).get("x-forwarded-proto", "").partition(",")[0]
        return "https" if said.strip().lower() == "https" else scheme


def is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine, as far as can be determined. A peer without an
    address (a UNIX socket) does not count as local: proxies connect this way."""
    headers = Headers(scope=scope)
    if not scope.get("client") or not is_loopback(scope["client"][0]):
        return False
    if scope["mounted"] or scope["http_version"] == "1.0":  # 1.0: nginx's default
        return False
    if any(name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIXES) for name in headers):
        return False
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    places = [f"//{headers.get('host', '')}", *headers.getlist("origin")]
    return all(is_loopback(_host_of(place)) for place in places)


def _peer(scope: Scope) -> str:
    """The address at the other end of the socket; empty for a UNIX socket."""
    return scope["client"][0] if scope.get("client") else ""


def is_mounted(scope: Scope) -> bool:
    """Whether the request came through another application; must be called before this one's
    routing."""
    return bool(scope.get("root_path")) or "endpoint" in scope or "app_root_path" in scope


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback address."""
    if host == "localhost":
        return True
    found = _address(host)
    return found is not None and found.is_loopback


def own_address(scope: Scope) -> str | None:
    """The address of the listening socket as a URL, never taken from the request."""
    host, port = scope.get("server") or ("", None)
    found = _address(host)
    if found is None or not port:
        return None
    shown = f"[{found}]" if found.version == 6 else str(found)
    return f"{scope.get('scheme', 'http')}://{shown}:{port}{scope.get('root_path', '')}"


@lru_cache(4096)
def client_network(address: str) -> str:
    """The key by which a client is counted: an IPv4 address, or an IPv6 /64 network, which
    usually belongs to one client."""
    found = _address(address)
    if found is None:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise SettingsError(
            f"trusted_proxies: {text[:50]!r} is neither an address nor a network; give for example "
            "10.0.0.7, 172.16.0.0/12"
        ) from None


def _host_of(place: str) -> str:
    try:
        return urlsplit(place).hostname or ""
    except ValueError:
        return ""
