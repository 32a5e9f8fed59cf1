package open

import (
	"slices"
	"strings"
)

// module is the beginning of the import paths.
const module = "github.com/swarmiji/swarmiji"

// homes lists the packages below open and their schemes. It is plain text, so an error can name the
// missing import, and no package is linked.
var homes = []struct {
	pkg     string
	schemes []string
}{
	{"amqp", []string{"amqp", "amqps"}},
	{"nats", []string{"nats", "tls"}},
	{"natsembedded", []string{"nats-embedded"}},
	{"redis", []string{
		"redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel",
	}},
	{"hworker", []string{"hworker+redis", "hworker+rediss"}},
	{"postgres", []string{"postgres", "postgresql"}},
	{"sqlite", []string{"sqlite"}},
}

// databases are the packages below open for SQL databases.
var databases = []string{"postgres", "sqlite"}

// home returns the name of the package below open for a scheme, or "" for an unknown scheme.
func home(scheme string) string {
	if i := homeIndex(scheme); i < len(homes) {
		return homes[i].pkg
	}
	return ""
}

// homeIndex returns the row of a scheme in homes, or len(homes) for an unknown scheme.
func homeIndex(scheme string) int {
	for i, h := range homes {
		if slices.Contains(h.schemes, scheme) {
			return i
		}
	}
	return len(homes)
}

// isDatabase reports whether the scheme is one of PostgreSQL or SQLite, whose URLs may be written
// without "//".
func isDatabase(scheme string) bool { return slices.Contains(databases, home(scheme)) }

// advise returns the advice for a URL without a usable scheme. For the name of a SQLite file it is
// how to write its URL. Otherwise it is the schemes in all, one for each package, with an example.
func advise(text string, all []entry) string {
	at, _, _ := strings.Cut(text, "?")
	if strings.HasPrefix(strings.ToLower(at), "sqlite3:") || !strings.Contains(at, "://") && strings.HasSuffix(at, ".db") {
		return "for a SQLite file write sqlite:// before an absolute path, or sqlite: before a relative one"
	}
	if len(all) == 1 { // only mem:// is imported
		return "write mem://, redis://:password@host:6379 or amqp://user:password@host:5672/vhost"
	}
	var names []string
	for _, e := range all {
		if i := homeIndex(e.scheme.Name); i == len(homes) || homes[i].schemes[0] == e.scheme.Name {
			names = append(names, e.scheme.Name+"://")
		}
	}
	last := len(names) - 1
	return "write " + strings.Join(names[:last], ", ") + " or " + names[last] + ", such as " + all[1].scheme.Form
}

// schemeNames returns the names of schemes for an error: the first scheme of each package of this
// module, imported or not, and the schemes in all that are not of this module.
func schemeNames(all []entry) []string {
	names := []string{memory + "://"}
	for _, h := range homes {
		names = append(names, h.schemes[0]+"://")
	}
	for _, e := range all[1:] {
		if home(e.scheme.Name) == "" {
			names = append(names, e.scheme.Name+"://")
		}
	}
	return names
}
