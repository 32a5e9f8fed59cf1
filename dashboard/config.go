package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/swarmiji/swarmiji/inspect"
)

// Config configures [New]. Only API is required.
type Config struct {
	// API is the system that is shown. The dashboard does not close it.
	API inspect.API

	// Users may log in with a name and a password, by basic authentication.
	Users []User
	// Tokens are for programs, which send one as a bearer token. They are valid for /api/v1 only.
	Tokens []Token
	// Proxies are the addresses whose header ProxyHeader names the user. The proxy must remove this
	// header from the requests that it gets.
	Proxies []netip.Prefix
	// ProxyHeader is the name of that header, such as X-Forwarded-User. ProxyRole is the role of
	// its users. Default of ProxyRole: [Viewer].
	ProxyHeader string
	ProxyRole   Role
	// Identify replaces all of the above: it returns the name and the role of the caller, or an
	// error if the caller is unknown. Use it below an authentication of your own.
	Identify func(r *http.Request) (name string, role Role, err error)

	// Authorize refuses single changes. It is called for changes that the caller's role allows,
	// with the queue, task or other thing that is changed. The target "" stands for several things,
	// or for one that the caller has yet to type. Its error is shown to the caller. nil: the role
	// decides alone.
	Authorize func(r *http.Request, do inspect.Do, target string) error
	// ReadOnly refuses all changes.
	ReadOnly bool
	// HideArguments shows no arguments, results, data of jobs or headers, and exports no dead
	// letters. Without it, viewers see only the arguments in which a task has hidden its secrets:
	// those of events and of the history.
	HideArguments bool

	// AllowedHosts are the names under which the dashboard may be called, beside localhost and
	// loopback addresses, without a port. This stops other web sites whose name leads to this
	// machine. "*" allows all names.
	AllowedHosts []string
	// Version is shown on the pages. "": none.
	Version string
	// Logger gets refused logins and errors of the API that no page shows. Default: slog.Default().
	Logger *slog.Logger
}

// Role says which changes a caller may make.
type Role int

// The roles. Each includes the earlier ones.
const (
	// Viewer may look at everything, except the original arguments of messages, schedule entries and
	// jobs.
	Viewer Role = iota
	// Operator may also look at original arguments, and make changes that lose nothing: pause, resume,
	// requeue, retry, cancel, run, limit and scale.
	Operator
	// Admin may also purge, drop, remove and export, and stop consumers.
	Admin
)

// ParseRole returns the role of a name: viewer, operator or admin.
func ParseRole(text string) (Role, error) {
	for _, r := range []Role{Viewer, Operator, Admin} {
		if text == r.String() {
			return r, nil
		}
	}
	return Viewer, fmt.Errorf("dashboard: the role %q is none of viewer, operator and admin", text)
}

// String returns the name of the role.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return fmt.Sprintf("role %d", int(r))
}

// User is a person with a password.
type User struct {
	Name, Password string
	Role           Role
}

// Token is the password of a program.
type Token struct {
	// Name is the name of the program in the audit log.
	Name string
	// Secret is sent in the header Authorization. At least 16 bytes.
	Secret string
	Role   Role
}

// minToken is the least length of a token in bytes. It alone protects from guessing: a wrong token
// does not slow down attempts with other tokens, since programs share addresses.
const minToken = 16

// check returns all problems of c, joined. It shows no secret.
func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("dashboard: "+format, args...)) }
	if c.API == nil {
		bad("Config.API is not set")
	}
	names := map[string]bool{}
	for _, u := range c.Users {
		switch {
		case u.Name == "" || u.Password == "":
			bad("a user needs a name and a password")
		case names[u.Name]:
			bad("two users are named %q", u.Name)
		case !u.Role.known():
			bad("user %q has the unknown %v", u.Name, u.Role)
		}
		names[u.Name] = true
	}
	secrets := map[string]string{}
	for _, t := range c.Tokens {
		other, twice := secrets[t.Secret]
		switch {
		case t.Name == "" || len(t.Secret) < minToken:
			bad("a token needs a name and a secret of at least %d bytes", minToken)
		case twice:
			bad("the tokens %q and %q have one secret", other, t.Name)
		case !t.Role.known():
			bad("token %q has the unknown %v", t.Name, t.Role)
		}
		secrets[t.Secret] = t.Name
	}
	if (len(c.Proxies) > 0) != (c.ProxyHeader != "") {
		bad("Proxies and ProxyHeader (--proxy and --proxy-header) need each other")
	}
	if !c.ProxyRole.known() {
		bad("ProxyRole is the unknown %v", c.ProxyRole)
	}
	if c.Identify != nil && (len(c.Users) > 0 || len(c.Tokens) > 0 || len(c.Proxies) > 0) {
		bad("Identify replaces Users, Tokens and Proxies; set one of them")
	}
	if slices.Contains(c.AllowedHosts, "") {
		bad("AllowedHosts has an empty name")
	}
	return errors.Join(errs...)
}

func (r Role) known() bool { return r >= Viewer && r <= Admin }

// Authenticates reports whether callers are identified. If not, the dashboard answers only requests
// that came to a loopback address.
func (c *Config) Authenticates() bool {
	return c.Identify != nil || len(c.Users) > 0 || len(c.Tokens) > 0 || len(c.Proxies) > 0
}
