import org.flywaydb.core.Flyway;

/** flyway -url=$JDBC_URL -locations=filesystem:DIR -table=postrider_flyway migrate */
public class FlywayMigrate {
    public static void main(String[] args) {
        Flyway.configure()
                .dataSource(System.getenv("JDBC_URL"), null, null)
                .locations("filesystem:" + args[0])
                .table("postrider_flyway")
                .load()
                .migrate();
    }
}
