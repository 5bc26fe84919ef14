// Package env makes a container's environment: its variables from values,
// fields, resources, ConfigMaps and Secrets, the variables of Services, and
// the $(VAR) references in them, in commands and in arguments.
package env
