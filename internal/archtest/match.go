package archtest

import "strings"

// matches reports whether a pattern matches the package at path rel below the module.
func matches(patterns []string, rel string) bool {
	for _, p := range patterns {
		if set, ok := strings.CutPrefix(p, "@"); ok {
			if matches(sets[set], rel) {
				return true
			}
			continue
		}
		if p == rel {
			return true
		}
		if dir, ok := strings.CutSuffix(p, "/*"); ok {
			if name, below := strings.CutPrefix(rel, dir+"/"); below && !strings.Contains(name, "/") {
				return true
			}
		}
		if dir, ok := strings.CutSuffix(p, "/..."); ok && (rel == dir || strings.HasPrefix(rel, dir+"/")) {
			return true
		}
	}
	return false
}

// ruleOf returns the first row that contains the package, and whether such a row exists.
func ruleOf(rel string) (rule, bool) {
	for _, r := range allLayers() {
		if matches(r.pkgs, rel) {
			return r, true
		}
	}
	return rule{}, false
}

// clientOf returns the row of the third-party package at path, and whether such a row exists.
func clientOf(path string) (client, bool) {
	for _, c := range clients {
		if path == c.path || strings.HasPrefix(path, c.path+"/") {
			return c, true
		}
	}
	return client{}, false
}

// relative returns path relative to the module, "." for the module itself. It returns false for a
// path outside the module.
func relative(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// standard reports whether path belongs to the standard library: its first element has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
