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

// homes finds paths that exist on one machine only.
var homes = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:])(/(?:root|home|Users|work)/[A-Za-z0-9._-]+)`)

// hosts finds the places that packages are downloaded from. Which ones a machine uses is its own affair; a file that names
// one fails where there is another.
var hosts = regexp.MustCompile(`\b(?:proxy|sum)\.golang\.org\b|\b(?:deb|security|ftp|snapshot)\.debian\.org\b|\bregistry\.npmjs\.org\b|\b(?:files\.pythonhosted|pypi)\.org\b`)

// skipped are directories that hold no files of the project.
var skipped = []string{".git", "bin", ".tmp"}

// projectFiles returns the paths of all text files below dir, relative to it.
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
		case !slices.Contains(skipped, rel):
		case d.IsDir():
			return filepath.SkipDir
		default:
			return nil // in a further work tree, .git is a file
		}
		if d.Type().IsRegular() {
			files = append(files, rel)
		}
		return nil
	})
	return files, err
}

// checkText finds what belongs to one machine in a file's text: its paths, and the further texts given.
func checkText(name string, text []byte, further ...string) []string {
	var bad []string
	for i, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, "/") { // the patterns are slow, and most lines lack what they begin with
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

// readText returns a file's content, and nil when it is not text.
func readText(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil || bytes.IndexByte(b, 0) >= 0 {
		return nil, err
	}
	return b, nil
}
