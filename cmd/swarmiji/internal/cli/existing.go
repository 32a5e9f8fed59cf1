package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Existing returns ErrNotFound if a URL names a SQLite file that does not exist, also in its
// parameters results and events. A command that needs no new database calls it before it opens
// URLs, since the first use of a SQLite file creates it. The error ends with remedy, which tells
// the meaning of the URL and the next step.
func Existing(remedy string, urls ...string) error {
	for _, one := range urls {
		for _, part := range parts(one) {
			if file := missingFile(part); file != "" {
				return fmt.Errorf("%w: there is no file %s; %s", ErrNotFound, Visible(file), remedy)
			}
		}
	}
	return nil
}

// parts returns a URL and those in its parameters results and events.
func parts(text string) []string {
	_, query, _ := strings.Cut(text, "?")
	values, _ := url.ParseQuery(query) // an error is reported when the URL is opened
	return []string{text, values.Get("results"), values.Get("events")}
}

// missingFile returns the file of a SQLite URL if that does not exist. It returns "" for a file
// that exists, for other databases and for invalid URLs.
func missingFile(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	file := u.Path
	if u.Opaque != "" {
		file, _ = url.PathUnescape(u.Opaque)
	}
	if _, err := os.Stat(file); file == "" || !errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return file
}
