// Package approval keeps calls that wait for humans, and releases each at most once (R23).
package approval
