package bedrock

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
)

// warn logs a warning if other machines can reach addr, the address of the listener, and the
// clients are not limited. Config.Allow and required client certificates limit them.
func (s *Server) warn(addr net.Addr) {
	at, ok := addrOf(addr)
	limited := len(s.c.Allow) > 0 || s.c.TLS != nil && s.c.TLS.ClientAuth >= tls.RequireAnyClientCert
	if ok && !at.IsLoopback() && !limited {
		s.c.Logger.Warn("bedrock: every client that reaches this address may read, change and delete all jobs; set Config.Allow, or require client certificates",
			"address", addr.String())
	}
}

// allowed reports whether Config.Allow permits a client with this address. Without Allow every
// address is permitted; with it, an address that is not an IP address is not.
func (s *Server) allowed(client net.Addr) bool {
	if len(s.c.Allow) == 0 {
		return true
	}
	at, ok := addrOf(client)
	for _, p := range s.c.Allow {
		if ok && p.Contains(at) {
			return true
		}
	}
	return false
}

// addrOf returns the IP address of addr, an IPv4 address in its short form, without port and zone.
// ok is false if addr is not a TCP address with an IP address.
func addrOf(addr net.Addr) (at netip.Addr, ok bool) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return at, false
	}
	at = tcp.AddrPort().Addr().Unmap().WithZone("")
	return at, at.IsValid()
}

// fromBrowser reports whether a method line is one of HTTP: it ends with a blank and "HTTP/…". A
// web page can make a browser send such a request with any command and any host name. No client of
// this protocol ends a method line like that.
func fromBrowser(line []byte) bool {
	last := line[bytes.LastIndexByte(line, ' ')+1:]
	return len(last) < len(line) && len(last) >= 5 && same(last[:4], "HTTP") && last[4] == '/'
}
