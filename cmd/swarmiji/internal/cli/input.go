package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Arguments returns the JSON arguments of the command line. "-" reads them from stdin. Without an
// argument it returns null.
func (a *App) Arguments(given []string) (json.RawMessage, error) {
	if len(given) == 0 {
		return json.RawMessage("null"), nil
	}
	text := []byte(given[0])
	if given[0] == "-" {
		var err error
		if text, err = io.ReadAll(io.LimitReader(a.Stdin, maxArguments+1)); err != nil {
			return nil, err
		}
		if len(text) > maxArguments {
			return nil, fmt.Errorf("%w: more than %d bytes of arguments", ErrUsage, maxArguments)
		}
	}
	if !json.Valid(text) {
		return nil, fmt.Errorf("%w: the arguments are no JSON; a text is written '\"text\"'", ErrUsage)
	}
	return text, nil
}

// Confirmed returns an error unless --yes or --dry-run is given, or a person types word.
func (a *App) Confirmed(ctx context.Context, yes, dryRun bool, word string) error {
	switch {
	case yes || dryRun:
		return nil
	case !a.Terminal:
		return fmt.Errorf("%w: this cannot be undone; say --yes, or --dry-run to count first", ErrUsage)
	}
	a.Say("this cannot be undone, and --dry-run counts first; type %s to confirm:", Visible(word))
	typed := make(chan string, 1)
	go func() { // it ends with the program at the latest
		line, _ := bufio.NewReader(a.Stdin).ReadString('\n') // a broken line confirms nothing
		typed <- strings.TrimSpace(line)
	}()
	select {
	case text := <-typed:
		if text != word {
			return fmt.Errorf("%w: this is not %s, so nothing is deleted; a script says --yes", ErrUsage, Visible(word))
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxArguments limits the bytes read from stdin. Adapters accept less.
const maxArguments = 16 << 20

// Document reads a JSON text from an argument, a file or stdin. It returns nil if none is given.
func (a *App) Document(given []string, most int64) (text []byte, err error) {
	if len(given) == 0 {
		return nil, nil
	}
	var from io.Reader = strings.NewReader(given[0])
	if file, ok := strings.CutPrefix(given[0], "@"); ok {
		f, err := os.Open(file) //nolint:gosec // the user names a file of their own
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		defer func() { _ = f.Close() }()
		from = f
	} else if given[0] == "-" {
		from = a.Stdin
	}
	if text, err = io.ReadAll(io.LimitReader(from, most+1)); err != nil {
		return nil, err
	}
	switch {
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%w: more than %d bytes of JSON", ErrUsage, most)
	case !json.Valid(text):
		return nil, fmt.Errorf("%w: this is no JSON; a text is written '\"text\"'", ErrUsage)
	}
	return text, nil
}

// Zone returns the time zone with the name of --zone.
func Zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		return nil, fmt.Errorf("%w: --zone: there is no time zone %q; write a name such as Europe/Berlin", ErrUsage, Visible(name))
	}
	return loc, nil
}

// Span parses a phrase with a duration of Go, such as "in 5m" or "in 1h30m".
func Span(phrase string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(phrase), "in ")
	d, err := time.ParseDuration(strings.TrimSpace(text))
	return d, ok && err == nil && d >= 0
}
