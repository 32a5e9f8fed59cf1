package open

import (
	"fmt"
	"slices"
	"strings"
)

// The parameters of all schemes.
const (
	paramNamespace = "namespace"
	paramResults   = "results"
	paramEvents    = "events"
	paramRetain    = "retain"
)

// The parameters of schemes with TLS.
const (
	paramCA         = "ca"
	paramCert       = "cert"
	paramKey        = "key"
	paramServerName = "server_name"
)

// own returns the parameters that package open or the driver reads. With TLS they include those of
// certificates.
func (s Scheme) own() []string {
	own := append([]string{paramNamespace, paramResults, paramEvents, paramRetain}, s.Params...)
	if s.Secure {
		own = append(own, paramCA, paramCert, paramKey, paramServerName)
	}
	return own
}

// knows reports whether the scheme accepts a parameter.
func (s Scheme) knows(param string) bool {
	return slices.Contains(s.own(), param) || slices.Contains(s.Client, param)
}

// leaves reports whether a parameter that own does not contain is left in the URL for the client
// library: each one of a database, and those of Scheme.Client.
func (s Scheme) leaves(param string) bool {
	return s.Place == PlaceDatabase || slices.Contains(s.Client, param)
}

// unknown returns the error for a parameter that scheme s does not have. The error names the
// schemes that have it; or what to use in place of a known name of another library; or else all
// parameters of s.
func (r *Registry) unknown(s Scheme, param string) error {
	var others []string
	for _, other := range r.entries() {
		if other.scheme.knows(param) {
			others = append(others, other.scheme.Name+"://")
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("parameter %s has no meaning in %s://; it belongs to %s", param, s.Name, strings.Join(others, ", "))
	}
	switch param {
	case "verify", "insecure", "skip_verify", "tls_skip_verify", "insecure_skip_verify", "tls_insecure", "sslmode", "ssl_cert_reqs", "fail_if_no_peer_cert":
		return fmt.Errorf("there is no parameter %s: the server's certificate is always verified; name its authority with ca", param)
	case "cacertfile", "certfile", "keyfile", "server_name_indication":
		return fmt.Errorf("there is no parameter %s; use ca, cert, key or server_name", param)
	}
	return fmt.Errorf("unknown parameter %s; known are %s", printable(param), strings.Join(slices.Concat(s.own(), s.Client), ", "))
}

// printable returns name for an error text if isWord accepts it. Otherwise it returns a
// replacement, because name may be part of a secret.
func printable(name string) string {
	if isWord(name) {
		return name
	}
	return "(whose name is no word)"
}

// isWord reports whether s has 1 to 32 lower-case letters, digits, '_', '-' and '+'.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '+'
	})
}
