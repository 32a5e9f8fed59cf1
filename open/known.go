package open

import "slices"

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
