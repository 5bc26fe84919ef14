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

// credential is a flag with a secret value. Other users of the machine can see
// arguments in the list of processes; therefore the value can also be in a file
// or come from standard input ("-").
type credential struct {
	flag  string  // --NAME; the flag for the file is --NAME-file
	value *string // receives the value; not empty if the flag itself was used
	file  string
}

// credentialSize is the maximum size in bytes of the input for a credential.
const credentialSize = 4 << 10

// readCredentials reads the credentials that are given by file. Several of them
// on standard input are separated by white space, in the order of the
// arguments; on a terminal it prompts for each.
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

// readFile reads the single word in a file.
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

// pipe reads the credentials from standard input, which must contain exactly
// one word for each.
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

// ask prompts for credentials without echo.
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

// credentialWords splits the input into words. Its errors do not contain the
// input.
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
