package embedded

import "path/filepath"

// The files of a directory, beside the server's own directory "jetstream".

// lockFile returns the path of the file that is locked while a server runs. The file is never
// removed: another process may be about to lock it, and a third could then lock a new file of that
// name.
func lockFile(dir string) string { return filepath.Join(dir, "server.lock") }

// addressFile returns the path of the file with the address. It exists while a server listens, and
// after a server was killed.
func addressFile(dir string) string { return filepath.Join(dir, "server.url") }

// streamsDir returns the path of the directory that holds one directory for each stream.
func streamsDir(dir string) string { return filepath.Join(dir, "jetstream", "$G", "streams") }
