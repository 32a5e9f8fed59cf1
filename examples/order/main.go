// Order is the web handler of a shop. It stores an order and submits the task that ships it in one
// transaction of a SQLite file: there is a task for each stored order and for no other.
//
//	go run ./examples/order
//
// makes three requests to itself. The payment of the second fails, after its task was submitted. It
// needs no server and prints:
//
//	tea: 200 OK
//	  shipped tea
//	a yacht: 402 Payment Required
//	milk: 200 OK
//	  shipped milk
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// Ship sends an order, whose id is its argument, and returns the item.
var Ship = task.New[int64, string]("shop.ship")

type shop struct {
	db      *sql.DB
	p       *producer.Producer
	shipped chan string
}

// order stores an order and submits its task. Both exist after the commit, and neither without it.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		http.Error(w, "no database", http.StatusServiceUnavailable)
		return
	}
	defer tx.Rollback() // does nothing after the commit
	id, item := int64(0), r.FormValue("item")
	err = tx.QueryRowContext(r.Context(), "INSERT INTO orders (item) VALUES ($1) RETURNING id", item).Scan(&id)
	if err == nil {
		_, err = Ship.SubmitTx(r.Context(), s.p, sqltx.Wrap(tx), id)
	}
	if err == nil && item == "a yacht" {
		http.Error(w, "the card was declined", http.StatusPaymentRequired)
		return
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		log.Print("order: ", err)
		http.Error(w, "the order was not stored", http.StatusInternalServerError)
	}
}

// ship is the handler of the task. It may run twice for one order, and changes nothing then.
func (s *shop) ship(ctx context.Context, id int64) (item string, err error) {
	err = s.db.QueryRowContext(ctx, "UPDATE orders SET shipped = 1 WHERE id = $1 RETURNING item", id).Scan(&item)
	if err == nil {
		s.shipped <- item
	}
	return item, err
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "order")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	swarm, err := open.Open(ctx, "sqlite://"+file, open.Options{}) // broker and results in the file
	check(err)
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, item text, shipped int)")
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	s := &shop{db: db, p: p, shipped: make(chan string, 10)}
	check(s.p.Connect(ctx)) // makes the tables before the first transaction
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(Ship.Handle(c, s.ship))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	server := httptest.NewServer(http.HandlerFunc(s.order)) // http.ListenAndServe in your program
	for _, item := range []string{"tea", "a yacht", "milk"} {
		answer, err := http.PostForm(server.URL, url.Values{"item": {item}})
		check(err)
		fmt.Printf("%s: %s\n", item, answer.Status)
		check(answer.Body.Close())
		if answer.StatusCode == http.StatusOK {
			fmt.Println("  shipped", <-s.shipped)
		}
	}
	stop()
	check(errors.Join(<-ended, s.p.Close(context.Background()), swarm.Close(context.Background()), db.Close()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
