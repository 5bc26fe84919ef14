package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// credential is a flag whose value others on this machine must not see, as they
// would in the list of processes: it can stand in a file, or come by standard
// input ("-").
type credential struct {
	flag  string  // --NAME; the file's is --NAME-file
	value *string // where it goes, unless it is there already
	file  string
}

// credentialSize bounds what is read for one.
const credentialSize = 4 << 10

// readCredentials reads those that are given by file. Several from standard input
// stand there in the order in which they are named here, with space between; at
// a terminal each is asked for.
func (s IO) readCredentials(credentials ...*credential) error {
	var piped []*credential
	for _, x := range credentials {
		switch {
		case x.file == "":
		case *x.value != "":
			return fmt.Errorf("%s and %[1]s-file are given: use one of them", x.flag)
		case x.file == "-":
			piped = append(piped, x)
		default:
			if err := x.readFile(); err != nil {
				return err
			}
		}
	}
	if fd, ok := terminal(s.In); ok {
		return s.ask(fd, piped)
	}
	return pipe(s.In, piped)
}

// readFile takes the one word of a file.
func (x *credential) readFile() error {
	f, err := os.Open(x.file)
	if err != nil {
		return fmt.Errorf("%s-file: %w", x.flag, err)
	}
	defer f.Close()
	words, err := credentialWords(f)
	if err != nil {
		return fmt.Errorf("%s-file %s: %w", x.flag, x.file, err)
	}
	if len(words) != 1 {
		return fmt.Errorf("%s-file %s: want one word and nothing else; found %d", x.flag, x.file, len(words))
	}
	*x.value = words[0]
	return nil
}

func pipe(in io.Reader, credentials []*credential) error {
	if len(credentials) == 0 {
		return nil
	}
	words, err := credentialWords(in)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if len(words) != len(credentials) {
		var flags []string
		for _, x := range credentials {
			flags = append(flags, x.flag)
		}
		return fmt.Errorf("standard input: want a word for %s, in this order, and nothing else; found %d", strings.Join(flags, " and one for "), len(words))
	}
	for i, x := range credentials {
		*x.value = words[i]
	}
	return nil
}

// ask has them typed, unseen.
func (s IO) ask(fd int, credentials []*credential) error {
	for _, x := range credentials {
		fmt.Fprintf(s.Err, "%s: ", strings.TrimPrefix(x.flag, "--"))
		typed, err := term.ReadPassword(fd)
		fmt.Fprintln(s.Err)
		if err != nil {
			return fmt.Errorf("read what is typed for %s: %w", x.flag, err)
		}
		*x.value = string(bytes.TrimSpace(typed))
	}
	return nil
}

// credentialWords never repeats what it reads in its error.
func credentialWords(r io.Reader) ([]string, error) {
	data, err := io.ReadAll(io.LimitReader(r, credentialSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > credentialSize {
		return nil, errors.New("it is longer than any credential")
	}
	return strings.Fields(string(data)), nil
}
