package open

// Schemes returns the names of all registered schemes.
func Schemes() []string {
	var names []string
	for _, e := range registered.entries() {
		names = append(names, e.scheme.Name)
	}
	return names
}

// Homes returns the package of each scheme, from the table that errors use.
func Homes() map[string]string {
	names := map[string]string{}
	for _, h := range homes {
		for _, s := range h.schemes {
			names[s] = h.pkg
		}
	}
	return names
}

// Parsed is the result of parsing a URL.
type Parsed struct {
	Shown string // the text in errors
	Hosts bool   // set if the URL names servers
	URLs  []string
}

// Parse parses a URL and the URLs of its results and events.
func Parse(url string) (Parsed, error) {
	t, err := registered.parse(url, Options{})
	if err != nil {
		return Parsed{}, err
	}
	for _, p := range []string{paramResults, paramEvents} {
		if _, err := t.part(p, ""); err != nil {
			return Parsed{}, err
		}
	}
	return Parsed{Shown: t.String(), Hosts: t.Scheme.Place == PlaceHosts, URLs: t.URLs()}, nil
}
