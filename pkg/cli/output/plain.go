package output

import (
	"strconv"
	"strings"
	"unicode"
)

// Plain escapes the control characters in text, which could control the terminal,
// as in Go strings. Newlines and tabs stay.
func Plain(text string) string {
	if strings.IndexFunc(text, controls) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if controls(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func controls(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
