// Package page follows the page for operators, deploy/README.md, word for word:
// it reads the commands from it and types them on machines. What a machine is
// (a container with systemd, a virtual machine) the caller knows.
package page
