package logs

import (
	"bytes"
	"io"
	"os"
)

// tailStart returns the offset in the file where its last n lines begin. The
// partial records of a line count as one.
func tailStart(f *os.File, n int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	if n <= 0 {
		return end, nil
	}
	// Read backwards in blocks. after holds the file from pos to the newline
	// that ends the current record.
	var after []byte
	pos, lines := end, int64(0)
	for pos > 0 {
		size := min(pos, chunk)
		block := make([]byte, size, size+int64(len(after)))
		if _, err := f.ReadAt(block, pos-size); err != nil && err != io.EOF {
			return 0, err
		}
		pos -= size
		after = append(block, after...)
		for {
			// The record between two newlines; the first record has no newline before it.
			i := bytes.LastIndexByte(bytes.TrimSuffix(after, newline), '\n')
			if i < 0 {
				break
			}
			record := after[i+1:]
			if endsLine(record) || pos+int64(len(after)) == end {
				if lines++; lines > n {
					return pos + int64(len(after)), nil
				}
			}
			after = after[:i+1]
		}
	}
	if endsLine(after) && lines+1 > n {
		return int64(len(after)), nil
	}
	return 0, nil
}

// endsLine reports whether a record is the last of its line. An invalid record
// counts as a line.
func endsLine(record []byte) bool {
	l, err := parse(record)
	return err != nil || !l.partial
}
