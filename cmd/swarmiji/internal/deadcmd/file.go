package deadcmd

import (
	"context"
	"errors"
	"io"
	"os"

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
			"file like a backup. --timeout limits only the connecting. Exit status: 1 if the file exists already.",
		Example: "  swarmiji dead export reports --file reports.jsonl\n" +
			"  swarmiji dead export reports --older-than 168h | gzip > old.jsonl.gz",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := which.filter()
			if err != nil {
				return err
			}
			return a.DeadLetters(cmd, args[0], func(ctx context.Context, l *deadletter.Letters) (err error) {
				out := a.Stdout
				if file != "" {
					to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names a file of their own
					if err != nil {
						return err
					}
					n, err := l.Export(ctx, args[0], f, to)
					return a.changed(args[0], "exported", n, errors.Join(err, to.Close()))
				}
				_, err = l.Export(ctx, args[0], f, out)
				return err
			})
		},
	}
	which.flags(cmd, 0)
	cmd.Flags().StringVar(&file, "file", "", "`file` to create; default: the standard output")
	return cmd
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
			return a.DeadLetters(cmd, args[0], func(ctx context.Context, l *deadletter.Letters) error {
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
