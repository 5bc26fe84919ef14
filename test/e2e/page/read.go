package page

import (
	"fmt"
	"os"
	"regexp"
)

// Command is a command of the page: the machines that its fence names, and what
// to type there.
type Command struct{ On, Script string }

// fewest is what the page has at least: a reader that finds less is wrong.
const fewest = 10

var fence = regexp.MustCompile("(?ms)^```sh (\\w+)\n(.*?)^```$")

// Read takes the commands from a page, in their order.
func Read(file string) (commands []Command, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, Command{On: m[1], Script: m[2]})
	}
	if len(commands) < fewest {
		return nil, fmt.Errorf("%s: only %d commands are found, of at least %d", file, len(commands), fewest)
	}
	return commands, nil
}
