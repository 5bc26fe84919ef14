// Package page follows the page for operators, deploy/README.md, word for word: it reads the
// commands from it and runs them on machines. The caller supplies the machines (containers
// with systemd, or virtual machines).
package page
