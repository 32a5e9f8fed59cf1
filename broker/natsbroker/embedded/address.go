package embedded

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// user is the name in the URL; the password alone tells who may join.
const user = "swarmiji"

// Address returns the URL, with its password, of the server that runs on a directory in another process, or in this one, and
// listens. Otherwise it is [ErrNotListening], also when the server was killed and could not remove its address. The URL is
// valid until that server is closed.
func Address(dir string) (string, error) {
	if _, err := os.Stat(addressFile(dir)); errors.Is(err, os.ErrNotExist) {
		return "", notListening(dir)
	}
	f, err := tryLock(lockFile(dir), false)
	if err == nil {
		_ = f.Close() // it was only looked at
		return "", fmt.Errorf("%w: the server on %s has ended", ErrNotListening, dir)
	}
	if !errors.Is(err, errHeld) {
		return "", fmt.Errorf("embedded: looking for the server on %s: %w", dir, err)
	}
	u, err := readAddress(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", notListening(dir)
	}
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

func notListening(dir string) error {
	return fmt.Errorf("%w: there is no server on %s, or one without Options.Listen", ErrNotListening, dir)
}

// readAddress reads the address of a directory, whether or not the server is still there.
func readAddress(dir string) (*url.URL, error) {
	b, err := os.ReadFile(addressFile(dir))
	if err != nil {
		return nil, fmt.Errorf("embedded: address of the server on %s: %w", dir, err)
	}
	u, err := url.Parse(strings.TrimSpace(string(b)))
	if err != nil || u.Scheme != "nats" || u.Host == "" { // the parser's error would quote the password
		return nil, fmt.Errorf("embedded: %s holds no address", addressFile(dir))
	}
	return u, nil
}

// writeAddress puts the address into its file, which only the user can read, at once as a whole.
func writeAddress(dir string, u *url.URL) error {
	name := addressFile(dir)
	temporary := name + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // one that is there may be readable by others
	}
	if err := os.WriteFile(temporary, []byte(u.String()+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// removeAddress removes the address of a server that has ended.
func removeAddress(dir string) error {
	if err := os.Remove(addressFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
