package open

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
)

// sqlSchemes are the schemes of the SQL databases, of which internal/sqlconn knows more.
func sqlSchemes() []string { return []string{"sqlite", "postgres", "postgresql"} }

func isSQL(url string) bool {
	name, _, found := strings.Cut(strings.TrimSpace(url), ":")
	return found && slices.Contains(sqlSchemes(), strings.ToLower(name))
}

// sqlScheme is the row of a database's scheme. It is not in the table, which is that of brokers.
func sqlScheme(list string) scheme {
	name, _, _ := strings.Cut(strings.TrimSpace(list), ":")
	s := scheme{
		name: strings.ToLower(name), where: database, results: sqlResults,
		server: "PostgreSQL", start: "start one, or name a file with sqlite:///path/app.db", port: "5432",
		broker: func(*target) (broker.Broker, error) {
			return nil, errors.New("a SQL database carries no tasks; it keeps results, as the parameter results of a broker's URL")
		},
		events: func(*target) (events.EventBus, error) {
			return nil, errors.New("a SQL database carries no events; give the URL of a broker for them")
		},
	}
	return s
}

// takeDatabase moves the parameters that end here into t, and leaves all else to internal/sqlconn.
func (t *target) takeDatabase(raw string) error {
	at, query, _ := strings.Cut(raw, "?")
	left, err := t.takeParams(query)
	if err != nil {
		return err
	}
	t.database = at + left
	if t.scheme.name == "sqlite" {
		return nil
	}
	u, err := url.Parse(t.database)
	if err != nil || strings.Contains(u.EscapedPath()+u.RawQuery, "@") || u.Fragment != "" { // a part of a password that was not encoded
		return errEscape
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), t.scheme.port
		}
		if name != "" { // else it is a socket, or what the environment says
			t.servers = append(t.servers, server{addr: net.JoinHostPort(name, port)})
		}
	}
	return nil
}

func sqlResults(t *target) (resultstore.ResultStore, error) {
	c := sqlresults.Config{
		URL: t.database, Name: t.clientName(), Namespace: t.namespace, TLS: t.options.TLS, Logger: t.options.Logger,
	}
	if t.scheme.name == "sqlite" {
		c.TLS = nil // it is for the other parts
	}
	return sqlresults.New(c)
}

// redactSQL is a database's URL without what may be secret.
func redactSQL(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return "unreadable"
	case u.Scheme == "sqlite":
		return u.Scheme + ":" + strings.TrimPrefix(u.Path+u.Opaque, "//")
	}
	return u.Scheme + "://" + u.Host
}
