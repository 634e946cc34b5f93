"""What travels between server and sites, and the contract with the noise plan that follows from it. No transport."""
