package database

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"podium/test/e2e/traffic"
)

// accounts is the number of accounts between which transactions move money. Their balances
// are zero in sum.
const accounts = 100

// schema makes the tables, again if the session that made them has lost the answer.
var schema = fmt.Sprintf(`
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE IF NOT EXISTS entries (writer int, number int, at timestamptz DEFAULT now(), PRIMARY KEY (writer, number));
INSERT INTO accounts SELECT id, 0 FROM generate_series(0, %d) AS id ON CONFLICT DO NOTHING;`, accounts-1)

// writer is one client. It commits one transaction after the other, each with a number of
// its own, which it never uses again.
type writer struct {
	id      int
	address string

	mu    sync.Mutex
	sent  int   // the last number sent
	acked []int // those that the database has acknowledged
	lost  int   // sessions that ended without an answer
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.session(ctx); err != nil {
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
		}
		traffic.Pause(ctx, 100*time.Millisecond)
	}
}

// session writes until a transaction fails: whether the database has committed it is not
// known.
func (w *writer) session(ctx context.Context) error {
	s, err := dial(ctx, w.address)
	if err != nil {
		return err
	}
	defer s.Close()
	for ctx.Err() == nil {
		number := w.next()
		if _, err := s.query(ctx, w.transaction(number)); err != nil {
			return err
		}
		w.mu.Lock()
		w.acked = append(w.acked, number)
		w.mu.Unlock()
	}
	return nil
}

func (w *writer) next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	return w.sent
}

// transaction moves money from one account to another, the one with the lower number first,
// so that no two transactions wait for each other.
func (w *writer) transaction(number int) string {
	from, amount := (number*7+w.id)%(accounts-1), number%50+1
	to := from + 1 + number%(accounts-1-from)
	return fmt.Sprintf(`BEGIN; INSERT INTO entries (writer, number) VALUES (%d, %d);
UPDATE accounts SET balance = balance - %d WHERE id = %d; UPDATE accounts SET balance = balance + %[3]d WHERE id = %[5]d; COMMIT`,
		w.id, number, amount, from, to)
}

// acknowledged returns how many transactions the database has acknowledged.
func (w *writer) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// check compares what the database has with what the writer has sent and what has been
// acknowledged. The writer has ended.
func (w *writer) check(rows []string) error {
	has := map[int]bool{}
	for _, row := range rows {
		number, err := strconv.Atoi(row)
		if err != nil || number > w.sent {
			return fmt.Errorf("writer %d: the database has %q, of %d transactions that were sent", w.id, row, w.sent)
		}
		has[number] = true
	}
	var missing []string
	for _, number := range w.acked {
		if !has[number] {
			missing = append(missing, strconv.Itoa(number))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("writer %d: %d acknowledged transactions are missing: %s", w.id, len(missing), strings.Join(missing, " "))
	}
	return nil
}
