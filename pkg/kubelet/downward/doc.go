// Package downward implements the downward API: it evaluates fieldRef and
// resourceFieldRef for environment variables and downwardAPI volumes.
package downward
