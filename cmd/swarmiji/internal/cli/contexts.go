package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/open"
)

// Setup is a named context: the URLs of one system. Passwords are references, see expand.
type Setup struct {
	Broker      string `json:"broker,omitempty"`
	Results     string `json:"results,omitempty"`
	Events      string `json:"events,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Schedule    string `json:"schedule,omitempty"`
	Jobs        string `json:"jobs,omitempty"`
	KeyFile     string `json:"key_file,omitempty"`
	ControlKeys string `json:"control_keys,omitempty"`
}

// contexts is the content of the file of contexts.
type contexts struct {
	Current  string           `json:"current,omitempty"` // "": no context is used
	Contexts map[string]Setup `json:"contexts"`
}

// contextFile returns the path of the file of contexts.
func (a *App) contextFile() (string, error) {
	dir := a.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("%w; set XDG_CONFIG_HOME", err)
		}
	}
	return filepath.Join(dir, "swarmiji", "contexts.json"), nil
}

// ReadContexts reads the file of contexts. A missing file has no context.
func (a *App) ReadContexts() (contexts, error) {
	c := contexts{Contexts: make(map[string]Setup)}
	path, err := a.contextFile()
	if err != nil {
		return c, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // a file of the user
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, fmt.Errorf("the contexts in %s: %w", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = make(map[string]Setup)
	}
	return c, nil
}

// WriteContexts replaces the file of contexts in one step.
func (a *App) WriteContexts(c contexts) error {
	path, err := a.contextFile()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "contexts-*") // readable by the user alone
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error counts
	}
	return err
}

// Reference matches the name of a variable or file that holds a secret of the URL of a context.
var Reference = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)

// expand replaces the references of a URL by their values, percent-encoded. Errors name the
// variable or the file and never a value.
func (a *App) expand(text string) (string, error) {
	var errs []error
	out := Reference.ReplaceAllStringFunc(text, func(ref string) string {
		m := Reference.FindStringSubmatch(ref)
		value := a.Getenv(m[2])
		if m[1] == "file" {
			data, err := os.ReadFile(m[2])
			if err != nil {
				errs = append(errs, err)
				return ""
			}
			value, _, _ = strings.Cut(string(data), "\n")
			value = strings.TrimSuffix(value, "\r")
		}
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", strings.ReplaceAll(m[0], "\n", "")))
		}
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	})
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("%w: the context: %w", ErrUsage, err)
	}
	return out, nil
}

// Hidden returns a URL of a context for people, without user, password and parameters.
func Hidden(text string) string {
	if text == "" {
		return ""
	}
	return open.Redact(Reference.ReplaceAllString(text, "x"))
}

// HiddenStore is Hidden for the URL of a store, or a file.
func HiddenStore(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return Hidden(text)
}

// NoContext returns the error for an unknown name.
func NoContext(name string, c contexts) error {
	return fmt.Errorf("there is no context %s; there are: %s: %w", Visible(name), strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", "), ErrNotFound)
}

// useContext sets the common options from the context that --context, the environment or the file
// names. Options that are given override it. Without a context it does nothing. online reports that
// the command needs a broker.
func (a *App) useContext(online bool) error {
	name := a.Context
	if name == "" {
		if name = a.Getenv("SWARMIJI_CONTEXT"); a.Broker != "" || a.Getenv("SWARMIJI_BROKER") != "" {
			return nil
		}
	}
	c, err := a.ReadContexts()
	if err != nil {
		if name == "" {
			a.Say("the contexts are not used: %s", a.Plain(err))
			return nil
		}
		return err
	}
	if name == "" {
		name = c.Current
	}
	if name == "" {
		return nil
	}
	s, ok := c.Contexts[name]
	if !ok {
		return NoContext(name, c)
	}
	for _, one := range []struct {
		to, from *string
		env      string
	}{
		{&a.Broker, &s.Broker, ""},
		{&a.Results, &s.Results, ""},
		{&a.Events, &s.Events, ""},
		{&a.Schedule, &s.Schedule, "SWARMIJI_SCHEDULE"},
		{&a.Jobs, &s.Jobs, "SWARMIJI_JOBS"},
	} {
		if *one.to != "" || *one.from == "" || a.Context == "" && one.env != "" && a.Getenv(one.env) != "" {
			continue
		}
		if *one.to, err = a.expand(*one.from); err != nil {
			if one.env == "" && !online { // the command needs no broker
				continue
			}
			return err
		}
		a.Hide(*one.to, HiddenStore(*one.from))
	}
	for _, one := range []struct{ to, from *string }{{&a.Namespace, &s.Namespace}, {&a.KeyFile, &s.KeyFile}, {&a.ControlKeys, &s.ControlKeys}} {
		if *one.to == "" {
			*one.to = *one.from
		}
	}
	return nil
}
