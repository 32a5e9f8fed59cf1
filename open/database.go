package open

import (
	"net"
	"net/url"
	"strings"
)

// takeDatabase parses the URL of a database. It moves the parameters of package open into t.Params
// and leaves the others in t.URL, for the SQL client. If the database is a server, it adds the
// hosts to t.Servers. Returns errEscape if the URL of a server cannot be parsed, and errors of
// takeParams.
func (t *target) takeDatabase(raw string) error {
	at, query, _ := strings.Cut(raw, "?")
	left, err := t.takeParams(query)
	if err != nil {
		return err
	}
	t.URL = at + left
	if t.Scheme.Port == "" { // the database is a file
		return nil
	}
	u, err := url.Parse(t.URL)
	// may be part of a password that is not encoded
	if err != nil || strings.Contains(u.EscapedPath()+u.RawQuery, "@") || u.Fragment != "" {
		return errEscape
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), t.Scheme.Port
		}
		if name != "" { // an empty name means a socket, or the host of the environment
			t.Servers = append(t.Servers, Server{Addr: net.JoinHostPort(name, port)})
		}
	}
	return nil
}

// redactedDatabase returns the URL of a database without parts that may be secret: the scheme and
// the file, or the scheme and the hosts. It returns "unreadable" if the URL cannot be parsed.
func (t *target) redactedDatabase() string {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
		return "unreadable"
	case t.Scheme.Port != "":
		return u.Scheme + "://" + u.Host
	case u.Opaque != "":
		return u.Scheme + ":" + u.Opaque
	}
	return u.Scheme + "://" + u.Path
}
