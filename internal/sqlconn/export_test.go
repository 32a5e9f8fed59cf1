package sqlconn

import "io/fs"

// BatchTime is the time of functions after which a batch of a SQLite file ends.
const BatchTime = batchTime

// ClassOfLite returns the class of an error code of SQLite.
func ClassOfLite(code int) error { return classOfLite(code) }

// Queued returns the number of calls that wait for the next commit of a SQLite file.
func Queued(c *Conn) int {
	g := c.db.(*lite).group
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

// Migrations returns the texts of a dialect's files.
func Migrations(files fs.FS, d Dialect) ([]string, error) { return migrations(files, d) }

// Tell sends topics to other processes.
func Tell(c *Conn, topics []string) { c.db.Tell(topics) }
