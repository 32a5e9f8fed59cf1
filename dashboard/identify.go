package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// caller is the sender of a request. The zero value has no name and the role Viewer.
type caller struct {
	name string
	role Role
}

// errUnknown reports that a caller gave no name, or a wrong password or token.
var errUnknown = errors.New("a name and a password, or a token, are needed")

// errRemote reports a request from outside to a dashboard without users.
var errRemote = errors.New("this dashboard has no users, so it answers only this machine")

// identify returns the caller of r, errUnknown or errRemote. api says that r is for /api/v1, where
// tokens are valid. guess reports that r carried a wrong password or token.
func (c *Config) identify(r *http.Request, api bool) (who caller, guess bool, err error) {
	switch {
	case c.Identify != nil:
		name, role, err := c.Identify(r)
		if err == nil && !role.known() {
			err = errUnknown
		}
		return caller{name, role}, false, err
	case !c.Authenticates():
		if !toLoopback(r) {
			return caller{}, false, errRemote
		}
		return caller{role: Admin}, false, nil
	}
	if name := c.proxied(r); name != "" {
		return caller{name, c.ProxyRole}, false, nil
	}
	if token, ok := bearer(r); ok && api {
		if t := find(c.Tokens, func(t *Token) bool { return same(t.Secret, token) }); t != nil {
			return caller{t.Name, t.Role}, false, nil
		}
		return caller{}, true, errUnknown
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		return caller{}, false, errUnknown
	}
	u := find(c.Users, func(u *User) bool { return same(u.Name, name) && same(u.Password, password) })
	if u == nil {
		return caller{}, true, errUnknown
	}
	return caller{u.Name, u.Role}, false, nil
}

// find returns the last element that is. It looks at all, so that its time tells nothing.
func find[T any](all []T, is func(*T) bool) (found *T) {
	for i := range all {
		if is(&all[i]) {
			found = &all[i]
		}
	}
	return found
}

// same compares two secrets in a time that depends on neither of them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearer returns the token of r. ok is false without the scheme Bearer.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// proxied returns the user that a trusted proxy names, or "".
func (c *Config) proxied(r *http.Request) string {
	addr, err := netip.ParseAddr(remote(r))
	if err != nil {
		return ""
	}
	for _, p := range c.Proxies {
		if p.Contains(addr.Unmap()) || p.Contains(addr) {
			if all := r.Header.Values(c.ProxyHeader); len(all) == 1 {
				return strings.TrimSpace(all[0])
			}
		}
	}
	return ""
}

// remote returns the address of the other side of the connection, without the port.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	host, _, _ = strings.Cut(host, "%") // the zone of a link-local address
	return host
}

// toLoopback reports whether r came from this machine to a loopback address. It returns false for a
// request through a proxy, since that may come from another machine.
func toLoopback(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	for _, a := range []string{local.String(), r.RemoteAddr} {
		p, err := netip.ParseAddrPort(a)
		if err != nil || !p.Addr().Unmap().IsLoopback() {
			return false
		}
	}
	return true
}
