package database

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// conn is a session of PostgreSQL, over the simple query protocol.
// https://www.postgresql.org/docs/15/protocol.html
type conn struct {
	net.Conn
	in *bufio.Reader
}

// patience is how long a client waits for an answer before it gives up its session.
const patience = 5 * time.Second

// most is the size of the largest message that the client accepts.
const most = 64 << 20

// dial opens a session of the superuser, who needs no password.
func dial(ctx context.Context, address string) (*conn, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &conn{c, bufio.NewReader(c)}
	const version = 3 << 16
	hello := append(binary.BigEndian.AppendUint32(nil, version), "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err = s.exchange(ctx, sized(nil, hello)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

// query runs statements in one transaction, and returns the rows of the last one that has
// any, their columns separated by tabs.
func (s *conn) query(ctx context.Context, sql string) (rows []string, err error) {
	return s.exchange(ctx, sized([]byte{'Q'}, append([]byte(sql), 0)))
}

// sized appends a body with its length to the head of a message.
func sized(head, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(head, uint32(len(body)+4)), body...)
}

// exchange sends a message and reads until the server is ready for the next one.
func (s *conn) exchange(ctx context.Context, message []byte) (rows []string, err error) {
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(time.Now()) })
	defer stop()
	if _, err := s.Write(message); err != nil {
		return nil, err
	}
	var failed error
	for {
		kind, body, err := s.read()
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		switch kind {
		case 'R':
			if len(body) < 4 || binary.BigEndian.Uint32(body) != 0 {
				return nil, errors.New("the server wants a password")
			}
		case 'T':
			rows = nil
		case 'D':
			row, err := columns(body)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		case 'E':
			failed = fmt.Errorf("the server answers %q", strings.ReplaceAll(string(body), "\x00", " "))
		case 'Z':
			return rows, failed
		}
	}
}

// read reads one message.
func (s *conn) read() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > most {
		return 0, nil, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(s.in, body)
	return head[0], body, err
}

// columns formats the columns of a row; a null is empty.
func columns(body []byte) (string, error) {
	if len(body) < 2 {
		return "", io.ErrUnexpectedEOF
	}
	out := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range out {
		if len(body) < 4 {
			return "", io.ErrUnexpectedEOF
		}
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size < 0 {
			continue
		}
		if int(size) > len(body) {
			return "", io.ErrUnexpectedEOF
		}
		out[i], body = string(body[:size]), body[size:]
	}
	return strings.Join(out, "\t"), nil
}
