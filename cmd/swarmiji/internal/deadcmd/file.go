package deadcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) deadExportCmd() *cobra.Command {
	var which deadFilter
	var file string
	cmd := &cobra.Command{
		Use:   "export QUEUE",
		Short: "Write dead letters to a file",
		Long: "Export writes the dead letters that match all flags, by default all of them, as JSON, one per line. It writes\n" +
			"them to the standard output, or to --file and then prints their number. The letters stay in the queue.\n\n" +
			"The messages are written byte for byte: sealed ones stay sealed, others contain their arguments. Protect the\n" +
			"file like a backup. Over --api, letters that are removed meanwhile may hide others from the export. --timeout\n" +
			"limits only the connecting. Exit status: 1 if the file exists already.",
		Example: "  swarmiji dead export reports --file reports.jsonl\n" +
			"  swarmiji dead export reports --older-than 168h | gzip > old.jsonl.gz",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := which.of(args[0])
			if err != nil {
				return err
			}
			if file == "" {
				_, err := a.export(cmd.Context(), &f, a.Stdout)
				return err
			}
			to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names a file of their own
			if err != nil {
				return err
			}
			n, err := a.export(cmd.Context(), &f, to)
			if err = errors.Join(err, to.Close()); err != nil && n == 0 {
				_ = os.Remove(file) // it was created here, and nothing is in it
			}
			return a.changed(args[0], "exported", n, err)
		},
	}
	which.flags(cmd, 0)
	cmd.Flags().StringVar(&file, "file", "", "`file` to create; default: the standard output")
	return cmd
}

// export writes the letters of f to w, one per line, and returns their number. With a broker it
// scans the queue once. Over --api each page is a scan.
func (a *app) export(ctx context.Context, f *selection, w io.Writer) (n int, err error) {
	if a.API == "" {
		filter := deadletter.Filter{
			IDs: f.IDs, Task: f.Name, Root: f.Root, Error: f.Error, Headers: f.Headers,
			OlderThan: time.Duration(f.OlderThan), YoungerThan: time.Duration(f.YoungerThan), Limit: f.limit,
		}
		err = a.DeadLetters(ctx, f.Queue, false, func(ctx context.Context, l *deadletter.Letters) error {
			n, err = l.Export(ctx, f.Queue, filter, w)
			return err
		})
		return n, err
	}
	err = a.withAPI(ctx, f.Queue, func(ctx context.Context, api inspect.API) error {
		_, err := inPages(f, func(q inspect.DeadQuery) (int, string, error) {
			page, err := api.ExportDead(ctx, q)
			for _, line := range page.Lines {
				if _, werr := w.Write(append(line, '\n')); werr != nil {
					return 0, "", werr
				}
				n++
			}
			return len(page.Lines), page.Next, err
		})
		return err
	})
	return n, err
}

func (a *app) deadImportCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "import QUEUE",
		Short: "Read dead letters from a file",
		Long: "Import adds the dead letters of a file that export wrote to the dead letters of QUEUE, whatever queue they\n" +
			"came from, and prints their number. The tasks do not run until they are requeued. A file that is imported\n" +
			"twice adds each letter twice.\n\n" +
			"At the first line that is not a dead letter it stops with status 2 and prints the number of the line; the\n" +
			"lines before it are imported. --timeout limits only the connecting.",
		Example: "  swarmiji dead import reports --file reports.jsonl\n" +
			"  zcat old.jsonl.gz | swarmiji dead import reports -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.DeadLetters(cmd.Context(), args[0], true, func(ctx context.Context, l *deadletter.Letters) error {
				in := io.NopCloser(a.Stdin)
				if file != "" {
					from, err := os.Open(file) //nolint:gosec // the user names a file of their own
					if err != nil {
						return err
					}
					in = from
				}
				n, err := l.Import(ctx, args[0], in)
				err = errors.Join(err, in.Close())
				a.Audit(ctx, inspect.Change{Do: inspect.DoImportDead, Target: args[0], Done: n}, nil, err)
				return errors.Join(a.changed(args[0], "imported", n, nil), err)
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` to read; default: the standard input")
	return cmd
}
