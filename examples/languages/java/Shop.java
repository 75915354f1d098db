import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/** Publishes a message in the transaction of its business change, and applies one exactly once. */
public class Shop {
    /** Places an order and publishes that it was placed, or does neither. */
    static void place(Connection db, String order, int total) throws SQLException {
        db.setAutoCommit(false);
        try (var insert = db.prepareStatement("INSERT INTO orders (id, total) VALUES (?, ?)");
                var publish = db.prepareStatement(
                        "SELECT postrider_publish('orders', ?, 'order.placed', ?::text, source => 'shop-java')")) {
            insert.setString(1, order);
            insert.setInt(2, total);
            insert.executeUpdate();
            publish.setString(1, "order/" + order);
            publish.setString(2, "{\"order_id\": \"%s\", \"total\": %d}".formatted(order, total)); // or your JSON library
            publish.execute();
            if (total < 0) {
                throw new IllegalArgumentException("the total is negative");
            }
            db.commit();
        } finally {
            db.rollback(); // does nothing after the commit
        }
    }

    /** Ships an order, unless the message was applied before. */
    static boolean apply(Connection db, String messageId, String order) throws SQLException {
        db.setAutoCommit(false);
        try (var claim = db.prepareStatement("INSERT INTO processed (message_id) VALUES (?) ON CONFLICT DO NOTHING");
                var ship = db.prepareStatement("UPDATE orders SET shipped = shipped + 1 WHERE id = ?")) {
            claim.setString(1, messageId);
            if (claim.executeUpdate() == 0) {
                return false;
            }
            ship.setString(1, order);
            ship.executeUpdate();
            db.commit();
            return true;
        } finally {
            db.rollback();
        }
    }

    public static void main(String[] args) throws SQLException {
        try (var db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            if (args[0].equals("place")) {
                place(db, args[1], Integer.parseInt(args[2]));
            } else {
                System.out.println(apply(db, args[1], args[2]) ? "applied" : "duplicate");
            }
        }
    }
}
