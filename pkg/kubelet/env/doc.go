// Package env builds the environment of a container: variables from values,
// fields, resources, ConfigMaps and Secrets, and those of Services. It also
// expands $(VAR) references in values, commands and arguments.
package env
