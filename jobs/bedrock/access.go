package bedrock

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
)

// warn tells of an address that other machines reach, where nothing limits the clients.
func (s *Server) warn(addr net.Addr) {
	at, ok := addrOf(addr)
	limited := len(s.c.Allow) > 0 || s.c.TLS != nil && s.c.TLS.ClientAuth >= tls.RequireAnyClientCert
	if ok && !at.IsLoopback() && !limited {
		s.c.Logger.Warn("bedrock: whoever reaches this address may read, change and delete all jobs; limit the clients by their addresses, or have them show certificates",
			"address", addr.String())
	}
}

// allowed reports whether a client of this address is served.
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

// addrOf is the IP address of addr; ok is false where it has none.
func addrOf(addr net.Addr) (at netip.Addr, ok bool) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return at, false
	}
	at = tcp.AddrPort().Addr().Unmap().WithZone("")
	return at, at.IsValid()
}

// fromBrowser reports whether a method line is one of HTTP, which a web page can have a browser send with any command, under any host name. No client of the protocol
// ends the line with a version of HTTP, and every browser does.
func fromBrowser(line []byte) bool {
	last := line[bytes.LastIndexByte(line, ' ')+1:]
	return len(last) < len(line) && len(last) >= 5 && same(last[:4], "HTTP") && last[4] == '/'
}
