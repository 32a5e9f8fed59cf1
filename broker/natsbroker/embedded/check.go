package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// check compares the streams in the directory with the streams that the server can use. It returns
// nil if all can be used, and ErrStore with all unusable ones, joined. A damaged stream without
// messages does not count. It waits for the server and also returns errors of the connection. It
// changes nothing.
//
// The server itself would only log unusable streams and continue. A program would then create the
// missing streams again, without their messages.
func check(ctx context.Context, dir string, p nats.InProcessConnProvider) error {
	entries, err := os.ReadDir(streamsDir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	usable, unusable, err := streams(ctx, p)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(unusable)) {
		errs = append(errs, fmt.Errorf("%w: stream %s in %s was written by a newer server (%s): use the version that wrote it",
			ErrStore, name, dir, unusable[name]))
	}
	for _, e := range entries {
		name := e.Name()
		// '.': the stream is being deleted
		if _, ok := unusable[name]; ok || usable[name] || strings.HasPrefix(name, ".") {
			continue
		}
		if path := filepath.Join(streamsDir(dir), name); hasMessages(path) {
			errs = append(errs, fmt.Errorf("%w: the definition of stream %s is damaged, see the server's log; restore %s from a copy, "+
				"or move it away to continue without its messages", ErrStore, name, path))
		} // otherwise the process was killed while it created the stream, and no message is lost
	}
	return errors.Join(errs...)
}

// hasMessages reports whether a stream's directory holds a message. A directory that cannot be read
// counts as one with messages.
func hasMessages(path string) bool {
	found := false
	// Blocks that cannot be read count as messages.
	err := filepath.WalkDir(filepath.Join(path, "msgs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if filepath.Ext(d.Name()) != ".blk" {
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			found = true
		}
		return err
	})
	return found || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// streams asks the server, over a connection of its own, for its streams: the names of the usable
// ones, and the unusable ones with the reason. It waits for the answers until ctx ends. Returns
// errors of the connection and of the server, with no streams.
func streams(ctx context.Context, p nats.InProcessConnProvider) (usable map[string]bool, unusable map[string]string, err error) {
	// The timeout is for a busy machine: the client's default of 2 s would fail the start of a slow
	// server.
	conn, err := nats.Connect("", nats.InProcessServer(p), nats.NoReconnect(), nats.Name("embedded check"), nats.Timeout(time.Minute))
	if err != nil {
		return nil, nil, fmt.Errorf("embedded: connecting to the server: %w", err)
	}
	defer conn.Close()
	usable, unusable = map[string]bool{}, map[string]string{}
	for offset := 0; ; {
		msg, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.LIST", fmt.Appendf(nil, `{"offset":%d}`, offset))
		if err != nil {
			return nil, nil, fmt.Errorf("embedded: listing the streams: %w", err)
		}
		var page struct {
			Total   int
			Streams []struct{ Config struct{ Name string } }
			Offline map[string]string
			Error   *struct{ Description string }
		}
		if err := json.Unmarshal(msg.Data, &page); err != nil {
			return nil, nil, fmt.Errorf("embedded: listing the streams: %w", err)
		}
		if page.Error != nil {
			return nil, nil, fmt.Errorf("embedded: listing the streams: %s", page.Error.Description)
		}
		for _, s := range page.Streams {
			usable[s.Config.Name] = true
		}
		maps.Copy(unusable, page.Offline)
		n := len(page.Streams) + len(page.Offline)
		if offset += n; n == 0 || offset >= page.Total {
			return usable, unusable, nil
		}
	}
}
