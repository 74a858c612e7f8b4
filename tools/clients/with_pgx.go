// pgx: its modes of queries, types, batches, COPY of rows, a pool, transactions, errors, encryption.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

var ctx = context.Background()

func equal(found, wanted any) error {
	if !reflect.DeepEqual(found, wanted) {
		return fmt.Errorf("%#v is not %#v", found, wanted)
	}
	return nil
}

func scanned[T any](c *pgx.Conn, wanted T, text string, arguments ...any) error {
	var found T
	if err := c.QueryRow(ctx, text, arguments...).Scan(&found); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return equal(found, wanted)
}

func values(c *pgx.Conn) error {
	at := time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)
	return errors.Join(
		scanned(c, int32(7), "select $1::int", 7),
		scanned(c, int64(1)<<40, "select $1::bigint", int64(1)<<40),
		scanned(c, int16(-3), "select $1::smallint", -3),
		scanned(c, "it's", "select $1::text", "it's"),
		scanned(c, true, "select $1::boolean", true),
		scanned(c, 0.5, "select $1::double precision", 0.5),
		scanned(c, []byte{0, 255}, "select $1::bytea", []byte{0, 255}),
		scanned(c, []int32{1, 2}, "select $1::int[]", []int32{1, 2}),
		scanned(c, []string{"a", "b,c"}, "select $1::text[]", []string{"a", "b,c"}),
		scanned(c, pgtype.Numeric{Int: big.NewInt(-125), Exp: -1, Valid: true}, "select $1::numeric", "-12.5"),
		scanned(c, [16]byte{15: 5}, "select $1::uuid", [16]byte{15: 5}),
		scanned(c, pgtype.Interval{Days: 1, Microseconds: 5, Valid: true}, "select $1::interval",
			pgtype.Interval{Days: 1, Microseconds: 5, Valid: true}),
		scanned(c, pgtype.Timestamp{Time: at, Valid: true}, "select $1::timestamp", pgtype.Timestamp{Time: at, Valid: true}),
		scanned(c, map[string]any{"a": 1.0}, "select $1::jsonb", map[string]any{"a": 1}),
		scanned(c, (*string)(nil), "select $1::text", nil),
	)
}

func modes(c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "create table if not exists modes (k int primary key, v text)"); err != nil {
		return err
	}
	for number, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		if _, err := c.Exec(ctx, "insert into modes values ($1, $2)", mode, number, "x"); err != nil {
			return fmt.Errorf("%v: %w", mode, err)
		}
		var found string
		if err := c.QueryRow(ctx, "select v from modes where k = $1", mode, number).Scan(&found); err != nil {
			return fmt.Errorf("%v: %w", mode, err)
		}
	}
	return nil
}

func batches(c *pgx.Conn) error {
	batch := &pgx.Batch{}
	for number := range 50 {
		batch.Queue("select $1::int", number)
	}
	results := c.SendBatch(ctx, batch)
	defer results.Close()
	for number := range 50 {
		var found int
		if err := results.QueryRow().Scan(&found); err != nil || found != number {
			return fmt.Errorf("%d: %d, %w", number, found, err)
		}
	}
	return nil
}

func copies(c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "create table copies (k int primary key, v text, at timestamptz, f float8)"); err != nil {
		return err
	}
	rows := make([][]any, 5000)
	for number := range rows {
		rows[number] = []any{number, fmt.Sprint("v", number), time.Now(), 0.5}
	}
	count, err := c.CopyFrom(ctx, pgx.Identifier{"copies"}, []string{"k", "v", "at", "f"}, pgx.CopyFromRows(rows))
	if err != nil {
		return err
	}
	return errors.Join(equal(count, int64(5000)), scanned(c, int64(5000), "select count(*) from copies"))
}

func rows(c *pgx.Conn) error {
	type pair struct {
		G int32
		T string
	}
	found, err := c.Query(ctx, "select g, g::text as t from generate_series(1, 3) g")
	if err != nil {
		return err
	}
	pairs, err := pgx.CollectRows(found, pgx.RowToStructByName[pair])
	return errors.Join(err, equal(pairs, []pair{{1, "1"}, {2, "2"}, {3, "3"}}))
}

func transactions(c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "create table tx (k int primary key)"); err != nil {
		return err
	}
	options := pgx.TxOptions{IsoLevel: pgx.Serializable}
	err := pgx.BeginTxFunc(ctx, c, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into tx values (1)"); err != nil {
			return err
		}
		nested := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into tx values (1)")
			return err
		})
		var refused *pgconn.PgError
		if !errors.As(nested, &refused) || refused.Code != "23505" || refused.ConstraintName != "tx_pkey" {
			return fmt.Errorf("not refused: %w", nested)
		}
		return nil
	})
	return errors.Join(err, scanned(c, int64(1), "select count(*) from tx"))
}

func cancels(c *pgx.Conn) error {
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	other, err := pgx.Connect(ctx, "")
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	if _, err := other.Exec(short, "select count(*) from generate_series(1, 2000000000)"); err == nil {
		return errors.New("it was not cancelled")
	}
	return nil
}

func pools(*pgx.Conn) error {
	pool, err := pgxpool.New(ctx, "pool_max_conns=4")
	if err != nil {
		return err
	}
	defer pool.Close()
	done := make(chan error)
	for number := range 20 {
		go func() {
			var found int
			err := pool.QueryRow(ctx, "select $1::int", number).Scan(&found)
			done <- errors.Join(err, equal(found, number))
		}()
	}
	var all error
	for range 20 {
		all = errors.Join(all, <-done)
	}
	return all
}

func encrypted(*pgx.Conn) error {
	cert := os.Getenv("LODESTONE_TLS_CERT")
	if cert == "" {
		return nil
	}
	where := fmt.Sprintf("host=localhost user=%s password=%s sslmode=verify-full sslrootcert=%s",
		os.Getenv("LODESTONE_TCP_USER"), os.Getenv("LODESTONE_TCP_PASSWORD"), cert)
	other, err := pgx.Connect(ctx, where)
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	return scanned(other, "tester", "select current_user::text")
}

func main() {
	c, err := pgx.Connect(ctx, "")
	if err != nil {
		fmt.Println("  failed:", err)
		os.Exit(1)
	}
	checks := []struct {
		name string
		run  func(*pgx.Conn) error
	}{
		{"values", values}, {"modes", modes}, {"batches", batches}, {"copies", copies}, {"rows", rows},
		{"transactions", transactions}, {"cancels", cancels}, {"pools", pools}, {"encrypted", encrypted},
	}
	failed := 0
	for _, check := range checks {
		if err := check.run(c); err != nil {
			failed++
			fmt.Printf("  failed: %s: %v\n", check.name, err)
		}
	}
	fmt.Printf("  %d of %d checks\n", len(checks)-failed, len(checks))
	if failed > 0 {
		os.Exit(1)
	}
}
