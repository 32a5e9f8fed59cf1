package embedded

import "path/filepath"

// The files of a directory, beside the server's own directory "jetstream".

// lockFile is locked while a server runs. It stays, since removing a file that others may be about to lock defeats the lock.
func lockFile(dir string) string { return filepath.Join(dir, "server.lock") }

// addressFile is there while a server listens, and after one was killed.
func addressFile(dir string) string { return filepath.Join(dir, "server.url") }

// streamsDir holds a directory for each stream.
func streamsDir(dir string) string { return filepath.Join(dir, "jetstream", "$G", "streams") }
