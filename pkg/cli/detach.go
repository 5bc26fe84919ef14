package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// defaultDetachKeys is the key sequence that leaves an attached container.
const defaultDetachKeys = "ctrl-p,ctrl-q"

func (o *execOptions) detachFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.DetachKeys, "detach-keys", defaultDetachKeys, "override the key sequence for detaching a container")
}

// parseKeys returns the bytes that a terminal sends for keys: characters and ctrl-X,
// separated by commas. "" are the default keys.
func parseKeys(text string) ([]byte, error) {
	if text == "" {
		text = defaultDetachKeys
	}
	var out []byte
	for _, key := range strings.Split(text, ",") {
		letter, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case !ctrl && len(key) == 1:
			out = append(out, key[0])
		case ctrl && len(letter) == 1 && strings.Contains("@abcdefghijklmnopqrstuvwxyz[\\]^_", letter):
			out = append(out, letter[0]&0x1f)
		default:
			return nil, fmt.Errorf("could not bind detach keys: unknown character: %q", key)
		}
	}
	return out, nil
}

// detachReader reads from a terminal until the keys are pressed: then it returns
// io.EOF, with which the server detaches. It holds back what may be the beginning of
// the keys until the next key.
type detachReader struct {
	in    io.Reader
	keys  []byte
	seen  int // how many of the keys were pressed
	ready []byte
	err   error // after ready
}

func newDetachReader(in io.Reader, keys string) (*detachReader, error) {
	parsed, err := parseKeys(keys)
	return &detachReader{in: in, keys: parsed}, err
}

// Read implements io.Reader.
func (d *detachReader) Read(p []byte) (int, error) {
	for len(d.ready) == 0 && d.err == nil {
		buf := make([]byte, len(p))
		n, err := d.in.Read(buf)
		d.err = err
		for _, b := range buf[:n] {
			d.press(b)
		}
		if err != nil {
			d.release()
		}
	}
	n := copy(p, d.ready)
	d.ready = d.ready[n:]
	if len(d.ready) > 0 {
		return n, nil
	}
	return n, d.err
}

// press takes one byte. What follows the keys is dropped.
func (d *detachReader) press(b byte) {
	if d.seen == len(d.keys) {
		return
	}
	if b != d.keys[d.seen] {
		d.release()
	}
	if b != d.keys[d.seen] {
		d.ready = append(d.ready, b)
		return
	}
	if d.seen++; d.seen == len(d.keys) {
		d.err = io.EOF
	}
}

// release gives back what turned out not to be the keys.
func (d *detachReader) release() {
	if d.seen < len(d.keys) {
		d.ready = append(d.ready, d.keys[:d.seen]...)
		d.seen = 0
	}
}
