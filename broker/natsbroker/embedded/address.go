package embedded

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// user is the user name in the URL. Only the password is checked.
const user = "swarmiji"

// Address returns the URL, with its password, of the server that runs on a directory, in another
// process or this one, and listens. The URL is valid until that server is closed. Returns
// [ErrNotListening] if no such server runs, even if a killed server has left its address.
func Address(dir string) (string, error) {
	if _, err := os.Stat(addressFile(dir)); errors.Is(err, os.ErrNotExist) {
		return "", notListening(dir)
	}
	f, err := tryLock(lockFile(dir), false)
	if err == nil {
		_ = f.Close() // the lock was only tested
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

// notListening returns ErrNotListening with the directory in its text.
func notListening(dir string) error {
	return fmt.Errorf("%w: there is no server on %s, or one without Options.Listen", ErrNotListening, dir)
}

// readAddress returns the address in a directory, whether or not its server still runs. The error
// never holds the password.
func readAddress(dir string) (*url.URL, error) {
	b, err := os.ReadFile(addressFile(dir))
	if err != nil {
		return nil, fmt.Errorf("embedded: address of the server on %s: %w", dir, err)
	}
	u, err := url.Parse(strings.TrimSpace(string(b)))
	// the parser's error would quote the password
	if err != nil || u.Scheme != "nats" || u.Host == "" {
		return nil, fmt.Errorf("embedded: %s holds no address", addressFile(dir))
	}
	return u, nil
}

// writeAddress writes the address into its file, which only the user can read. It replaces the file
// in one atomic step. Returns errors of the file system; the old file stays then.
func writeAddress(dir string, u *url.URL) error {
	name := addressFile(dir)
	temporary := name + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // an existing file may be readable by others
	}
	if err := os.WriteFile(temporary, []byte(u.String()+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// removeAddress removes the address file of a server that has ended. It returns nil if the file
// does not exist.
func removeAddress(dir string) error {
	if err := os.Remove(addressFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
