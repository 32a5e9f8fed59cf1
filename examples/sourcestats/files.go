package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// goSource returns the directory of the standard library's sources.
func goSource(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return "", fmt.Errorf("go env GOROOT: %w (name a directory with -root)", err)
	}
	return filepath.Join(root, "src"), nil
}

// resolve returns the absolute path of a directory without symbolic links, because a walk does not
// follow links, not even at its root.
func resolve(root string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(root)
}

// goFiles returns all regular .go files at or below a resolved root, sorted by name.
func goFiles(root string) ([]File, error) {
	var files []File
	//nolint:gosec // any directory may be named, by whoever runs the program
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) == ".go" {
			files = append(files, File{Path: path})
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no .go file below %s", root)
	}
	return files, err
}

// below returns a path for display: relative to the root, with slashes.
func below(root, path string) string {
	if rel, err := filepath.Rel(root, path); err == nil {
		path = rel
	}
	return filepath.ToSlash(path)
}
