package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// homes matches paths that exist on one machine only.
var homes = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:])(/(?:root|home|Users|work)/[A-Za-z0-9._-]+)`)

// hosts matches the hosts from which packages are downloaded. Each machine may use other hosts, so
// a file that names one fails elsewhere.
var hosts = regexp.MustCompile(`\b(?:proxy|sum)\.golang\.org\b|\b(?:deb|security|ftp|snapshot)\.debian\.org\b|\bregistry\.npmjs\.org\b|\b(?:files\.pythonhosted|pypi)\.org\b`)

// skipped lists directories without files of the project.
var skipped = []string{".git", "bin", ".tmp"}

// projectFiles returns the paths of all regular files below dir, relative to it, without the
// skipped directories.
func projectFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case !slices.Contains(skipped, rel) && d.Name() != "node_modules":
		case d.IsDir():
			return filepath.SkipDir
		default:
			return nil // in another work tree, .git is a file
		}
		if d.Type().IsRegular() {
			files = append(files, rel)
		}
		return nil
	})
	return files, err
}

// checkText returns a sentence for each text in the file that belongs to one machine: its paths,
// and the further texts given.
func checkText(name string, text []byte, further ...string) []string {
	var bad []string
	for i, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, "/") { // the patterns are slow, and most lines have no slash
			for _, m := range homes.FindAllStringSubmatch(line, -1) {
				bad = append(bad, fmt.Sprintf("%s:%d: names the machine's path %s", name, i+1, m[1]))
			}
		}
		if strings.Contains(line, ".org") {
			for _, m := range hosts.FindAllString(line, -1) {
				bad = append(bad, fmt.Sprintf("%s:%d: names the package host %s", name, i+1, m))
			}
		}
		for _, f := range further {
			if f != "" && strings.Contains(line, f) {
				bad = append(bad, fmt.Sprintf("%s:%d: names %q, which exists on this machine only", name, i+1, f))
			}
		}
	}
	return bad
}

// readText returns a file's content, or nil if the file is not text.
func readText(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil || bytes.IndexByte(b, 0) >= 0 {
		return nil, err
	}
	return b, nil
}
