package postgres_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/sqldb/postgres"
)

// The text of the migrations is for a role that owns the tables. It needs no connection.
func ExampleOpen() {
	db, err := postgres.Open("postgres://user:password@h1,h2/shop?target_session_attrs=read-write", postgres.Config{Schema: "swarm"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(context.Background())
	script, err := db.Migrations()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, line := range strings.SplitAfterN(script, "\n", 4)[:3] {
		fmt.Print(line)
	}
	// Output:
	// BEGIN;
	// CREATE SCHEMA IF NOT EXISTS "swarm";
	// SET LOCAL search_path TO "swarm";
}

// Through PgBouncer, statements are not prepared. One direct connection receives notifications.
func ExampleOpen_pgBouncer() {
	db, err := postgres.Open("postgres://user:password@pgbouncer:6432/shop", postgres.Config{
		PgBouncer: true,
		ListenURL: "postgres://user:password@database:5432/shop",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(context.Background())
	b, err := sqlbroker.New(sqlbroker.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(context.Background())
}

// The adapters use the connections of the program's own pool.
func ExampleFromPool() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://user:password@database/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	db, err := postgres.FromPool(pool, postgres.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	results, err := sqlresults.New(sqlresults.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	defer results.Close(ctx)
}
