package callback

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// The parameters of a URL.
const (
	paramName      = "name"
	paramKey       = "key"
	paramError     = "error"
	paramExpires   = "expires"
	paramSignature = "signature"
)

// URL returns the URL at which a [Handler] under base receives the answer for the job with this
// name and key. base is absolute, such as "https://example.org/answers", and may have a query. A
// name or key that proxies might change in a path, because it contains a slash or is "..", becomes
// a parameter. Use it for handlers without a [Signer].
//
// Returns an error for an invalid base, name or key, and for a base with a parameter that the
// handler uses itself.
func URL(base, name, key string) (string, error) {
	u, err := parseBase(base)
	if err != nil {
		return "", err
	}
	return target(u, name, key, nil)
}

// parseBase parses the URL of a handler and removes its fragment. Returns an error if the URL is
// malformed, has no host, or is neither http nor https. The error does not contain the URL, which
// may contain a password.
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("callback: the base is not an http or https URL")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// target returns the URL u of a handler with a name, a key and the parameters more. The name and
// the key are added to the path, or as parameters if either is not plain. Returns an error for an
// invalid name or key, and for a malformed query of u. Returns an error if u already has a
// parameter that the handler uses.
func target(u *url.URL, name, key string, more url.Values) (string, error) {
	a := answerOf(name, key)
	if err := checkAnswer(&a); err != nil {
		return "", fmt.Errorf("callback: URL: %w", err)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errors.New("callback: the query of the base is malformed")
	}
	for _, p := range []string{paramName, paramKey, paramError, paramExpires, paramSignature} {
		if q.Has(p) {
			return "", fmt.Errorf("callback: the base has a parameter %q, which the handler uses itself", p)
		}
	}
	if plain(name) && plain(key) {
		u = u.JoinPath(name, key)
	} else {
		q.Set(paramName, name)
		q.Set(paramKey, key)
	}
	for k, v := range more {
		q[k] = v
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// unreserved contains the characters without a special meaning in a URL.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// plain reports whether s can be a segment of a path without escapes, which no proxy changes: it
// has only unreserved characters and is neither "." nor "..".
func plain(s string) bool {
	return s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(unreserved, r) })
}

// address is the part of a request that identifies the answer: path and parameters.
type address struct {
	name, key          string
	refused            bool
	reason             string
	expires, signature string
}

// The errors of an address.
var (
	errPath  = errors.New("no such path")
	errQuery = errors.New("malformed query")
	errTwice = errors.New("a parameter occurs twice, or also in the path")
)

// parseAddress parses the path below prefix and the query of a request. refused reports that the
// parameter "error" exists, even if it is empty. Returns errPath for another path, errQuery for a
// malformed query, and errTwice for a parameter that is repeated or also in the path.
func parseAddress(u *url.URL, prefix string) (address, error) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return address{}, errPath
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return address{}, errQuery
	}
	var a address
	if a.name, a.key, err = segments(rest); err != nil {
		return address{}, err
	}
	for _, p := range []struct {
		param string
		into  *string
	}{{paramName, &a.name}, {paramKey, &a.key}, {paramError, &a.reason}, {paramExpires, &a.expires}, {paramSignature, &a.signature}} {
		switch vs := q[p.param]; {
		case len(vs) > 1 || len(vs) == 1 && *p.into != "":
			return address{}, errTwice
		case len(vs) == 1:
			*p.into = vs[0]
		}
	}
	a.refused = q.Has(paramError)
	return a, nil
}

// segments parses the path behind the prefix: "", /name or /name/key, unescaped. A missing part is
// "". Returns errPath for any other path.
func segments(rest string) (name, key string, err error) {
	if rest = strings.TrimPrefix(rest, "/"); rest == "" {
		return "", "", nil
	}
	escaped, escapedKey, two := strings.Cut(rest, "/")
	if escaped == "" || two && (escapedKey == "" || strings.Contains(escapedKey, "/")) {
		return "", "", errPath
	}
	if name, err = url.PathUnescape(escaped); err != nil {
		return "", "", errPath
	}
	if key, err = url.PathUnescape(escapedKey); err != nil {
		return "", "", errPath
	}
	return name, key, nil
}
