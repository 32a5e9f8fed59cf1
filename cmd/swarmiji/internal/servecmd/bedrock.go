package servecmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/bedrock"
	"github.com/swarmiji/swarmiji/when"
)

// bedrockOptions holds the flags of bedrock.
type bedrockOptions struct {
	listen, store       string
	cert, key, clientCA string
	allow               []string
	maxConns            int
	snap, reanchor      bool
}

func (a *app) bedrockCmd() *cobra.Command {
	var o bedrockOptions
	cmd := &cobra.Command{
		Use:   "bedrock",
		Short: "Serve jobs over the line protocol of Bedrock::Jobs",
		Long: "Bedrock serves CreateJob, GetJob, FinishJob and the other commands of Bedrock::Jobs until it is interrupted,\n" +
			"then it ends with status 0. At the start it prints its store and address. Programs in any language can use it,\n" +
			"and people with nc. A change is on disk before it is answered with 200. Several servers may share one store.\n\n" +
			"Everyone that can reach the address can read and change all jobs. By default only this machine can. --allow\n" +
			"limits the addresses of clients, and --tls-client-ca demands client certificates. Exit status: 4 if the store\n" +
			"cannot be reached at the start.",
		Example: "  swarmiji bedrock --listen 127.0.0.1:8888 --store jobs.db\n" +
			"  SWARMIJI_JOBS=postgres://user:password@host/database swarmiji bedrock\n" +
			"  printf 'CreateJob\\nname: foo\\ndata: {\"value\":1}\\n\\n' | nc -N 127.0.0.1 8888",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // runs without a broker
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.bedrock(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.listen, "listen", bedrock.DefaultListen, "`address` to listen on")
	f.StringVar(&o.store, "store", "", "`name` of a SQLite file (created if missing), URL (sqlite:///path/jobs.db, postgres://user:password@host/database), or mem, which loses the jobs at the end; default: $SWARMIJI_JOBS, or else jobs.db")
	f.StringSliceVar(&o.allow, "allow", nil, "`addresses` of clients that are served, such as 10.1.0.0/16,192.0.2.7; default: all")
	f.StringVar(&o.cert, "tls-cert", "", "`file` with the server's certificate; connections then use TLS; default: no TLS")
	f.StringVar(&o.key, "tls-key", "", "`file` with the key of --tls-cert")
	f.StringVar(&o.clientCA, "tls-client-ca", "", "`file` with certificate authorities; clients must show a certificate of one of them")
	f.IntVar(&o.maxConns, "max-conns", bedrock.DefaultMaxConns, "maximum number of connections at a time")
	f.BoolVar(&o.snap, "snap", false, "HOURLY, DAILY and WEEKLY run at the next full hour, midnight and Sunday's midnight, as in Bedrock's own server; default: an hour, day or week after the end of the run")
	f.BoolVar(&o.reanchor, "reanchor", false, "repeats from SCHEDULED with an interval below 4 hours skip missed runs; default: missed runs follow one after the other")
	return cmd
}

// bedrock serves the line protocol until ctx ends. Then it closes the server and the store.
func (a *app) bedrock(ctx context.Context, o *bedrockOptions) (err error) {
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	encryption, err := o.tls()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	allow, err := o.prefixes()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	store, place, err := a.OpenJobs(ctx, cmp.Or(o.store, a.Getenv("SWARMIJI_JOBS"), "jobs.db"), logger)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	service, err := jobs.New(jobs.Config{Store: store, Repeats: when.RepeatConfig{Snap: o.snap}, Reanchor: o.reanchor, Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTime)
		defer cancel()
		err = errors.Join(err, service.Close(closing), store.Close(closing))
	}()
	server, err := bedrock.New(bedrock.Config{Service: service, Listen: o.listen, Allow: allow, TLS: encryption, MaxConns: o.maxConns, Logger: logger})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if err := a.reach(ctx, service); err != nil {
		return err
	}
	ln, err := server.Listen(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.Stdout, "jobs in %s at %s\n", place, ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	return server.Serve(ctx, ln)
}

// reach lists one job, so that an unreachable store or tables of a newer version are reported at
// the start.
func (a *app) reach(ctx context.Context, service *jobs.Service) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	_, err := service.List(ctx, jobs.Filter{Limit: 1})
	return err
}

// prefixes parses the addresses of --allow. A single address counts as a prefix of full length.
func (o *bedrockOptions) prefixes() ([]netip.Prefix, error) {
	if o.allow != nil && len(o.allow) == 0 { // as from an empty variable
		return nil, errors.New("--allow names no address; without it all are served")
	}
	var all []netip.Prefix
	for _, text := range o.allow {
		p, err := netip.ParsePrefix(text)
		if at, e := netip.ParseAddr(text); e == nil {
			p, err = netip.PrefixFrom(at, at.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--allow: %q is neither an address nor a network; they are as 192.0.2.7 and 10.1.0.0/16", text)
		}
		all = append(all, p)
	}
	return all, nil
}

// tls loads the certificates. It returns nil if no flag names one.
func (o *bedrockOptions) tls() (*tls.Config, error) {
	if o.cert == "" && o.key == "" && o.clientCA == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if o.clientCA == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-client-ca: there is no certificate in %s", o.clientCA)
	}
	return cfg, nil
}
