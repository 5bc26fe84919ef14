package page

import (
	"fmt"
	"os"
	"regexp"
)

// Command is a command of the page, with the machines that its fence names.
type Command struct{ On, Script string }

// fewest is the minimum number of commands on the page: fewer mean a bug in Read.
const fewest = 10

var fence = regexp.MustCompile("(?ms)^```sh (\\w+)\n(.*?)^```$")

// Read parses the commands of a page, in order.
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
