package shop

import (
	"fmt"
	"math/rand/v2"
)

// Catalog returns the 20 products with which inventory begins, 1,000 of each. Their prices are between 9.99 and 5,999.99, and the
// same for the same seed.
func Catalog(seed uint64) []Product {
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{
		"Pencil", "Notebook", "Mug", "Lamp", "Cable", "Mouse", "Keyboard", "Headset", "Webcam", "Chair",
		"Desk", "Shelf", "Phone", "Tablet", "Monitor", "Printer", "Laptop", "Projector", "Server", "Workstation",
	}
	products := make([]Product, len(names))
	for i, name := range names {
		products[i] = Product{SKU: fmt.Sprintf("P-%02d", i+1), Name: name, Price: Money(10+random.IntN(190)) * Money(i*i/8+1) * 10, Stock: 1000}
		products[i].Price -= 1
	}
	products[0].Price, products[len(products)-1].Price = 9_99, 5_999_99
	return products
}

// Customers returns the accounts of the 50 customers with whom payments begins.
func Customers() []Account {
	accounts := make([]Account, 50)
	for i := range accounts {
		accounts[i] = Account{Customer: fmt.Sprintf("customer-%02d", i+1), Card: fmt.Sprintf("4000-%04d", i+1)}
	}
	return accounts
}
