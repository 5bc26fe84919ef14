// Package laws holds the laws of the house: who may import whom, what a package
// must say of itself, how small a main is, what stands at the top.
package laws
